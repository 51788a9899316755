import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.ParameterMetaData;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Time;
import java.sql.Timestamp;
import java.sql.Types;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TimeZone;
import java.util.TreeMap;
import org.apache.arrow.driver.jdbc.shaded.com.fasterxml.jackson.databind.ObjectMapper;

/** Calls a Flight SQL server as programs with JDBC do, and prints what it gets as JSON. */
public class JdbcClient {
    interface Call {
        Object run() throws Exception;
    }

    interface Values {
        void set(PreparedStatement statement) throws SQLException;
    }

    private static final String SLOW =
            "SELECT count(*) FROM range(1000000000) a, range(100) b WHERE hash(a.range, b.range) = 1";
    private final Connection connection;

    JdbcClient(Connection connection) {
        this.connection = connection;
    }

    public static void main(String[] arguments) throws Exception {
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        Properties properties = new Properties();
        properties.put("token", arguments[1]);
        properties.put("useEncryption", "false");
        Map<String, Object> found = new TreeMap<>();
        // the driver finds buffers that it has not released itself when it closes, so the connection is left to the end
        JdbcClient client = new JdbcClient(DriverManager.getConnection(arguments[0], properties));
        found.put("facts", client.facts());
        found.put("listings", client.listings());
        found.put("parameters", client.parameters());
        found.put("changes", client.changes());
        found.put("columns", client.columns());
        found.put("slow", client.slow());
        System.out.println("\n" + new ObjectMapper().writeValueAsString(found));
        System.exit(0);
    }

    /** Returns the answers of all methods about the server that take no argument. */
    private Map<String, Object> facts() throws SQLException {
        Map<String, Object> found = new TreeMap<>();
        DatabaseMetaData about = connection.getMetaData();
        for (Method method : DatabaseMetaData.class.getMethods()) {
            if (method.getParameterCount() == 0 && method.getReturnType() != Connection.class) {
                found.put(method.getName(), answer(() -> method.invoke(about)));
            }
        }
        return found;
    }

    /** Returns the answers that tools show in their trees. */
    private Map<String, Object> listings() throws SQLException {
        Map<String, Object> found = new TreeMap<>();
        DatabaseMetaData about = connection.getMetaData();
        found.put("tables", answer(() -> about.getTables(null, null, "%", null)));
        found.put("views", answer(() -> about.getTables("lake", "main", "%", new String[] {"VIEW"})));
        found.put("columns", answer(() -> about.getColumns(null, "main", "items", "%")));
        found.put("schemas", answer(() -> about.getSchemas(null, "ma%")));
        found.put("keys", answer(() -> about.getPrimaryKeys("lake", "main", "keyed")));
        found.put("imported", answer(() -> about.getImportedKeys("lake", "main", "keyed")));
        found.put("exported", answer(() -> about.getExportedKeys("lake", "main", "keyed")));
        found.put("cross", answer(() -> about.getCrossReference("lake", "main", "keyed", "lake", "main", "items")));
        found.put("indexes", answer(() -> about.getIndexInfo("lake", "main", "keyed", false, true)));
        found.put("procedures", answer(() -> about.getProcedures(null, null, "%")));
        found.put("functions", answer(() -> about.getFunctions(null, null, "%")));
        found.put("numbers to texts", answer(() -> about.supportsConvert(Types.INTEGER, Types.VARCHAR)));
        found.put("dates to numbers", answer(() -> about.supportsConvert(Types.DATE, Types.INTEGER)));
        found.put("repeatable", answer(() -> about.supportsTransactionIsolationLevel(4)));
        found.put("forward", answer(() -> about.supportsResultSetType(ResultSet.TYPE_FORWARD_ONLY)));
        return found;
    }

    /** Returns the values that statements get, beside the types of their parameters. */
    private Map<String, Object> parameters() {
        Map<String, Object> found = new TreeMap<>();
        found.put("text", asked("SELECT ?", s -> s.setString(1, "žluť")));
        found.put("boolean", asked("SELECT ?::BOOLEAN", s -> s.setBoolean(1, true)));
        found.put("byte", asked("SELECT ?::TINYINT", s -> s.setByte(1, (byte) -8)));
        found.put("short", asked("SELECT ?::SMALLINT", s -> s.setShort(1, (short) 300)));
        found.put("int", asked("SELECT ?::INTEGER", s -> s.setInt(1, 70000)));
        found.put("long", asked("SELECT ?::BIGINT", s -> s.setLong(1, 5_000_000_000L)));
        found.put("float", asked("SELECT ?::FLOAT", s -> s.setFloat(1, 2.5f)));
        found.put("double", asked("SELECT ?::DOUBLE", s -> s.setDouble(1, 1.25)));
        found.put("decimal", asked("SELECT ?::DECIMAL(10, 2)", s -> s.setBigDecimal(1, new BigDecimal("1.25"))));
        found.put("date", asked("SELECT year(?::DATE)", s -> s.setDate(1, Date.valueOf("2024-02-29"))));
        found.put("time", asked("SELECT hour(?::TIME)", s -> s.setTime(1, Time.valueOf("10:20:30"))));
        Timestamp moment = Timestamp.valueOf("2024-02-29 10:20:30.123");
        found.put("timestamp", asked("SELECT epoch_ms(?::TIMESTAMP)", s -> s.setTimestamp(1, moment)));
        found.put("instant", asked("SELECT epoch_ms(?::TIMESTAMPTZ)", s -> s.setTimestamp(1, moment)));
        found.put("bytes", asked("SELECT ?::BLOB", s -> s.setBytes(1, new byte[] {0, -1})));
        found.put("uuid", asked("SELECT ?::UUID", s -> s.setString(1, "6a7e7f0c-0b0a-4d3f-8a2a-111111111111")));
        found.put("list", asked("SELECT ?::INT[]", s -> s.setString(1, "[1, 2]")));
        found.put("null", asked("SELECT ?::INTEGER IS NULL", s -> s.setNull(1, Types.INTEGER)));
        found.put("compared", asked("SELECT name FROM items WHERE id = ? AND name LIKE ?", s -> {
            s.setInt(1, 2);
            s.setString(2, "it%");
        }));
        found.put("added", asked("SELECT ? + 1", s -> s.setDouble(1, 1.5)));
        found.put("named", asked("SELECT $b || $a || $b::VARCHAR WHERE $n > 1", s -> {
            s.setString(1, "b");
            s.setString(2, "a");
            s.setInt(3, 2);
        }));
        found.put("page", asked("SELECT id FROM items ORDER BY id LIMIT ? OFFSET ?", s -> {
            s.setInt(1, 1);
            s.setLong(2, 3);
        }));
        found.put("hostile", asked("SELECT count(*) FROM items WHERE name = ?", s -> s.setString(1, "' OR 1=1 --")));
        return found;
    }

    private Object asked(String sql, Values values) {
        return answer(() -> {
            try (PreparedStatement statement = connection.prepareStatement(sql)) {
                List<Object> types = new ArrayList<>();
                ParameterMetaData about = statement.getParameterMetaData();
                for (int place = 1; place <= about.getParameterCount(); place++) {
                    types.add(about.getParameterTypeName(place));
                }
                values.set(statement);
                return List.of(types, answer(statement::executeQuery));
            }
        });
    }

    /** Returns the counts of statements that change rows. */
    private Map<String, Object> changes() {
        Map<String, Object> found = new TreeMap<>();
        found.put("1 insert", changed("INSERT INTO written VALUES (?, ?, ?, ?)", s -> {
            s.setLong(1, 1);
            s.setString(2, "a");
            s.setBigDecimal(3, new BigDecimal("1.50"));
            s.setTimestamp(4, Timestamp.valueOf("2024-02-29 10:20:30.5"));
        }));
        found.put("2 update", changed("UPDATE written SET name = ?, amount = ? WHERE id = ?", s -> {
            s.setString(1, "b");
            s.setNull(2, Types.DECIMAL);
            s.setLong(3, 1);
        }));
        found.put("3 merge", changed(
                "MERGE INTO written USING (SELECT ? AS id, ? AS name) AS s ON written.id = s.id"
                        + " WHEN MATCHED THEN UPDATE SET name = s.name"
                        + " WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)",
                s -> {
                    s.setLong(1, 2);
                    s.setString(2, "merged");
                }));
        found.put("4 batch", batch("INSERT INTO written (id, name) VALUES (?, ?)", 10, 11, 12));
        found.put("5 batch", batch("DELETE FROM written WHERE id = ? AND name = ?", 10, 12, 99));
        found.put("6 failed", batch("INSERT INTO written (id, name) SELECT ?, replace(?, 'n20', '1')::INTEGER::VARCHAR", 20, 21));
        found.put("7 plain", answer(() -> {
            try (Statement statement = connection.createStatement()) {
                return statement.executeUpdate("DELETE FROM written WHERE id = 2");
            }
        }));
        return found;
    }

    private Object changed(String sql, Values values) {
        return answer(() -> {
            try (PreparedStatement statement = connection.prepareStatement(sql)) {
                values.set(statement);
                return statement.executeUpdate();
            }
        });
    }

    private Object batch(String sql, int... ids) {
        return answer(() -> {
            try (PreparedStatement statement = connection.prepareStatement(sql)) {
                for (int id : ids) {
                    statement.setLong(1, id);
                    statement.setString(2, "n" + id);
                    statement.addBatch();
                }
                return statement.executeBatch();
            }
        });
    }

    /** Returns what results tell of their columns. */
    private Object columns() {
        return answer(() -> {
            try (Statement statement = connection.createStatement();
                    ResultSet rows = statement.executeQuery("SELECT id, name, 1.5 AS d, now() AS t, [1] AS l FROM items")) {
                ResultSetMetaData about = rows.getMetaData();
                List<Object> found = new ArrayList<>();
                for (int place = 1; place <= about.getColumnCount(); place++) {
                    found.add(List.of(about.getColumnLabel(place), about.getColumnTypeName(place)));
                }
                return found;
            }
        });
    }

    /** Returns how queries end that are cancelled or take too long. */
    private Map<String, Object> slow() throws Exception {
        Map<String, Object> found = new TreeMap<>();
        try (Statement statement = connection.createStatement()) {
            Thread canceller = new Thread(() -> {
                while (!Thread.currentThread().isInterrupted()) {
                    try {
                        Thread.sleep(500);
                        statement.cancel();
                    } catch (Exception ended) {
                        return;
                    }
                }
            });
            canceller.start();
            found.put("cancelled", answer(() -> statement.executeQuery(SLOW)));
            canceller.interrupt();
            canceller.join();
        }
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            found.put("late", answer(() -> statement.executeQuery(SLOW)));
        }
        try (Statement statement = connection.createStatement()) {
            found.put("after", answer(() -> statement.executeQuery("SELECT 1")));
            found.put("wrong", answer(() -> statement.executeQuery("SELECT nothing FROM items")));
            found.put("shown", answer(() -> statement.executeQuery("SHOW TABLES")));
        }
        return found;
    }

    /** Returns what a call returns in a form that JSON has: rows as a list, an error as its text after "error: ". */
    private static Object answer(Call call) {
        try {
            Object found = call.run();
            if (found instanceof ResultSet rows) {
                try (rows) {
                    return read(rows);
                }
            }
            return found instanceof Enum<?> ? found.toString() : found;
        } catch (Throwable error) {
            Throwable cause = error instanceof InvocationTargetException && error.getCause() != null ? error.getCause() : error;
            StringBuilder text = new StringBuilder("error: ");
            for (; cause != null; cause = cause.getCause()) {
                text.append(cause).append('\n');
            }
            return text.toString();
        }
    }

    private static List<List<Object>> read(ResultSet rows) throws SQLException {
        List<List<Object>> found = new ArrayList<>();
        int width = rows.getMetaData().getColumnCount();
        while (rows.next()) {
            List<Object> row = new ArrayList<>();
            for (int place = 1; place <= width; place++) {
                Object value = rows.getObject(place);
                boolean plain = value == null || value instanceof Number || value instanceof Boolean;
                row.add(value instanceof byte[] bytes ? HexFormat.of().formatHex(bytes) : plain ? value : value.toString());
            }
            found.add(row);
        }
        return found;
    }
}
