package quacklake;

import java.io.File;
import java.net.URLDecoder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
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
 * sizes, one in a line; all paths have the same start. Without sizes it asks the disk, which costs little: a wrong size would hide rows. It is null
 * when a file is missing. Files never change, so there is nothing to refresh. {@code values} are the facts of each file,
 * a line of them separated by tabs. Spark leaves filters that are about facts alone to the index.
 */
public class QuacklakeFiles implements FileIndex {
    private FileStatus[] files = new FileStatus[0];
    private Path[] paths = new Path[0];
    private long bytes = 0;
    private StructType facts = new StructType();
    private InternalRow[] rows = null;

    public QuacklakeFiles of(String start, String names, String sizes, StructType facts, String values)
            throws Exception {
        String[] name = names.split("\n");
        String[] size = sizes == null ? null : sizes.split("\n");
        QuacklakeFiles made = new QuacklakeFiles();
        made.files = new FileStatus[name.length];
        made.paths = new Path[name.length];
        for (int i = 0; i < name.length; i++) {
            Path path = new Path(start + name[i]);
            long length = size == null ? new File(path.toUri().getPath()).length() : Long.parseLong(size[i]);
            if (length <= 0) return null;
            made.paths[i] = path;
            made.files[i] = new FileStatus(length, false, 1, 128L << 20, 0L, path);
            made.bytes += length;
        }
        made.facts = facts;
        if (facts.length() > 0) made.rows = made.read(values.split("\n", -1));
        return made;
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

    public Seq rootPaths() { return PythonUtils.toSeq(Arrays.asList((Object[]) paths)); }

    public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
        if (rows == null)
            return PythonUtils.toSeq(Collections.singletonList(PartitionDirectory.apply(InternalRow.empty(), files)));
        BasePredicate[] wanted = predicates(partitionFilters);
        ArrayList found = new ArrayList();
        for (int i = 0; i < files.length; i++) {
            boolean all = true;
            for (int j = 0; j < wanted.length && all; j++) all = wanted[j].eval(rows[i]);
            if (all) found.add(PartitionDirectory.apply(rows[i], new FileStatus[] {files[i]}));
        }
        return PythonUtils.toSeq(found);
    }

    public String[] inputFiles() {
        String[] found = new String[paths.length];
        for (int i = 0; i < paths.length; i++) found[i] = paths[i].toUri().toString();
        return found;
    }

    public void refresh() {}

    public long sizeInBytes() { return bytes; }

    public StructType partitionSchema() { return facts; }

    public boolean equals(Object other) {
        if (!(other instanceof QuacklakeFiles)) return false;
        QuacklakeFiles one = (QuacklakeFiles) other;
        return Arrays.equals(paths, one.paths) && facts.equals(one.facts) && Arrays.equals(rows, one.rows);
    }

    public int hashCode() { return Arrays.hashCode(paths); }
}
