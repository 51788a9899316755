package quacklake;

import java.io.File;
import java.net.URI;
import java.net.URLDecoder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.function.IntFunction;
import java.util.function.IntToLongFunction;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.BasePredicate;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.Predicate$;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.Seq;

/**
 * The files of a table, as Spark's Parquet reader asks for them.
 *
 * <p>Compiled where it runs, by the compiler that Spark has for its own use. {@code of} makes an index of paths and
 * sizes, one in a line; all paths start with the folder that they are in. Without sizes it asks the disk, in several
 * threads, which costs little: a wrong size would hide rows. It is null when a file is missing. Everything else is made
 * when Spark asks for it. Files never change, so there is nothing to refresh. {@code values} are the facts of each file,
 * a line of them separated by tabs. Spark leaves filters that are about facts alone to the index.
 */
public class QuacklakeFiles implements FileIndex {
    private static final String LOCAL = "file://";

    private String start = "";
    private String names = "";
    private String values = "";
    private String[] name = new String[0];
    private long[] length = new long[0];
    private long bytes = 0;
    private StructType facts = new StructType();
    private InternalRow[] rows = null;
    private volatile Path[] paths = null;
    private volatile FileStatus[] files = null;

    public QuacklakeFiles of(String start, String names, String sizes, StructType facts, String values)
            throws Exception {
        QuacklakeFiles made = new QuacklakeFiles();
        made.start = start;
        made.names = names;
        made.values = values;
        made.name = names.split("\n");
        made.length = sizes == null ? onDisk(start, made.name) : numbers(sizes.split("\n"));
        for (int i = 0; i < made.name.length; i++) {
            if (made.length[i] <= 0) return null;
            made.bytes += made.length[i];
        }
        made.facts = facts;
        if (facts.length() > 0) made.rows = made.read(values.split("\n", -1));
        return made;
    }

    private static long[] onDisk(final String start, final String[] name) {
        long[] found = new long[name.length];
        Arrays.parallelSetAll(found, new IntToLongFunction() {
            public long applyAsLong(int i) {
                String path = start + name[i];
                return path.startsWith(LOCAL) ? new File(path.substring(LOCAL.length())).length() : 0;
            }
        });
        return found;
    }

    private static long[] numbers(String[] texts) {
        long[] found = new long[texts.length];
        for (int i = 0; i < texts.length; i++) found[i] = Long.parseLong(texts[i]);
        return found;
    }

    private Path[] paths() {
        if (paths == null) {
            final String folder = start.isEmpty() ? "" : new Path(start).toUri().toString();
            final boolean quick = !start.isEmpty() && !folder.endsWith("/");
            Path[] made = new Path[name.length];
            Arrays.parallelSetAll(made, new IntFunction() {
                public Object apply(int i) {
                    // a name that no URI changes need not be taken apart
                    boolean plain = quick && isPlain(name[i]);
                    return plain ? new Path(URI.create(folder + "/" + name[i])) : new Path(start + name[i]);
                }
            });
            paths = made;
        }
        return paths;
    }

    private static boolean isPlain(String name) {
        for (int i = 0; i < name.length(); i++) {
            char c = name.charAt(i);
            boolean letter = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9';
            boolean slash = c == '/' && i > 0 && i < name.length() - 1 && name.charAt(i - 1) != '/';
            if (!letter && !slash && c != '-' && c != '_' && c != '.' && c != '=') return false;
        }
        return true;
    }

    private FileStatus[] files() {
        if (files == null) {
            Path[] known = paths();
            FileStatus[] made = new FileStatus[known.length];
            for (int i = 0; i < made.length; i++) made[i] = new FileStatus(length[i], false, 1, 128L << 20, 0L, known[i]);
            files = made;
        }
        return files;
    }

    private InternalRow[] read(String[] lines) throws Exception {
        InternalRow[] found = new InternalRow[lines.length];
        for (int i = 0; i < lines.length; i++) {
            String[] texts = lines[i].split("\t", -1);
            Object[] row = new Object[texts.length];
            for (int j = 0; j < texts.length; j++) {
                if (texts[j].isEmpty()) continue;
                String text = texts[j].substring(1);
                if (facts.fields()[j].dataType() instanceof LongType) row[j] = Long.valueOf(text);
                else row[j] = UTF8String.fromString(URLDecoder.decode(text, "UTF-8"));
            }
            found[i] = new GenericInternalRow(row);
        }
        return found;
    }

    private static class Bound extends scala.runtime.AbstractPartialFunction {
        private final StructType facts;

        Bound(StructType facts) { this.facts = facts; }

        public boolean isDefinedAt(Object node) { return node instanceof AttributeReference; }

        public Object applyOrElse(Object node, scala.Function1 otherwise) {
            if (!isDefinedAt(node)) return otherwise.apply(node);
            int i = facts.fieldIndex(((AttributeReference) node).name());
            return new BoundReference(i, facts.fields()[i].dataType(), true);
        }
    }

    private BasePredicate[] predicates(Seq filters) {
        ArrayList found = new ArrayList();
        scala.collection.Iterator each = filters.iterator();
        while (each.hasNext()) {
            Expression bound = (Expression) ((Expression) each.next()).transform(new Bound(facts));
            found.add(Predicate$.MODULE$.createInterpreted(bound));
        }
        return (BasePredicate[]) found.toArray(new BasePredicate[0]);
    }

    public Seq rootPaths() {
        Object[] roots = start.isEmpty() ? (Object[]) paths() : new Object[] {new Path(start)};
        return PythonUtils.toSeq(Arrays.asList(roots));
    }

    public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
        FileStatus[] all = files();
        if (rows == null)
            return PythonUtils.toSeq(Collections.singletonList(PartitionDirectory.apply(InternalRow.empty(), all)));
        BasePredicate[] wanted = predicates(partitionFilters);
        ArrayList found = new ArrayList();
        for (int i = 0; i < all.length; i++) {
            boolean fits = true;
            for (int j = 0; j < wanted.length && fits; j++) fits = wanted[j].eval(rows[i]);
            if (fits) found.add(PartitionDirectory.apply(rows[i], new FileStatus[] {all[i]}));
        }
        return PythonUtils.toSeq(found);
    }

    public String[] inputFiles() {
        Path[] known = paths();
        String[] found = new String[known.length];
        for (int i = 0; i < known.length; i++) found[i] = known[i].toUri().toString();
        return found;
    }

    public void refresh() {}

    public long sizeInBytes() { return bytes; }

    public StructType partitionSchema() { return facts; }

    public boolean equals(Object other) {
        if (!(other instanceof QuacklakeFiles)) return false;
        QuacklakeFiles one = (QuacklakeFiles) other;
        boolean same = start.equals(one.start) && names.equals(one.names);
        return same && facts.equals(one.facts) && values.equals(one.values);
    }

    public int hashCode() { return 31 * start.hashCode() + names.hashCode(); }
}
