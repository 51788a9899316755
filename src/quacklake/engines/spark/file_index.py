"""Parquet files as a DataFrame, without Spark looking at each of them first.

Given paths, Spark's reader asks the store whether each is there and what is in it: several requests for each file on an
object store, and twenty seconds of the driver for 100,000 files on a disk. The catalog knows the files, so that on a
classic session Spark gets an index of them that is made in one call. The few lines of Java for it are compiled where
they run, by the compiler that Spark has for its own use. Where anything of that is missing or different, Spark's reader
is given the paths.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from string import Template
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import WeakKeyDictionary

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from quacklake.engines.spark.compat import is_connect
from quacklake.engines.spark.paths import spark_paths, spark_uri
from quacklake.engines.spark.session import LISTING, settings
from quacklake.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from quacklake.storage import Store

__all__ = ["READ_OPTIONS", "read_files", "read_paths"]

#: No setting of a session may let a file be passed over, or its times be moved.
READ_OPTIONS = {
    "recursiveFileLookup": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
}

_HIDDEN = re.compile(r"/(\.[^/]*|_[^/=]*|[^/]*\._COPYING_)$")
"""A file whose rows Spark's reader leaves out, without a word."""

_NAME = "QuacklakeFiles"
#: ``of`` makes an index of paths and sizes, one in a line. Without sizes it asks the disk, which costs little: a wrong
#: one would hide rows. It is null when a file is not there. Files never change, so that there is nothing to refresh.
_JAVA = Template(
    """
package $package;

import java.io.File;
import java.util.Arrays;
import java.util.Collections;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;

public class $name implements FileIndex {
    private FileStatus[] files = new FileStatus[0];
    private Path[] paths = new Path[0];
    private long bytes = 0;

    public $name of(String names, String sizes) {
        String[] name = names.split("\\n");
        String[] size = sizes == null ? null : sizes.split("\\n");
        $name made = new $name();
        made.files = new FileStatus[name.length];
        made.paths = new Path[name.length];
        for (int i = 0; i < name.length; i++) {
            Path path = new Path(name[i]);
            long length = size == null ? new File(path.toUri().getPath()).length() : Long.parseLong(size[i]);
            if (length <= 0) return null;
            made.paths[i] = path;
            made.files[i] = new FileStatus(length, false, 1, 128L << 20, 0L, path);
            made.bytes += length;
        }
        return made;
    }

    public $seq rootPaths() { return PythonUtils.toSeq(Arrays.asList((Object[]) paths)); }

    public $seq listFiles($seq partitionFilters, $seq dataFilters) {
        return PythonUtils.toSeq(Collections.singletonList(PartitionDirectory.apply(InternalRow.empty(), files)));
    }

    public String[] inputFiles() {
        String[] found = new String[paths.length];
        for (int i = 0; i < paths.length; i++) found[i] = paths[i].toUri().toString();
        return found;
    }

    public void refresh() {}

    public long sizeInBytes() { return bytes; }

    public StructType partitionSchema() { return new StructType(); }

    public boolean equals(Object other) {
        return other instanceof $name && Arrays.equals(paths, (($name) other).paths);
    }

    public int hashCode() { return Arrays.hashCode(paths); }
}
"""
)
_SOURCES = "org.apache.spark.sql.execution.datasources"

#: What makes an index in each JVM; None where it cannot be.
_makers: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_lock = threading.Lock()


def read_files(session: SparkSession, store: Store, files: pa.Table, urls: Sequence[str], schema: str) -> DataFrame:
    """The rows of data files of a plan, with the columns of ``schema`` as they are named in the files.

    ``urls`` are those of the files.
    """
    found = None if is_connect(session) else _indexed(session, store, files, urls, schema)
    return read_paths(session, store, urls, schema) if found is None else found


def read_paths(session: SparkSession, store: Store, urls: Sequence[str], schema: str) -> DataFrame:
    """The same of any Parquet files, which Spark looks at now.

    Raises ``UnsupportedFeatureError`` for a file that Spark would pass over.
    """
    hidden = next((url for url in urls if _HIDDEN.search(url)), None)
    if hidden is not None:
        raise UnsupportedFeatureError(
            f"Spark passes over files with names like that of {hidden}",
            hint="rewrite the table's files, or read it with a classic session or by lake.table(…)",
        )
    with settings(session, LISTING if store.is_local else {}):
        return session.read.options(**READ_OPTIONS).schema(schema).parquet(*spark_paths(urls))


def _indexed(
    session: SparkSession, store: Store, files: pa.Table, urls: Sequence[str], schema: str
) -> DataFrame | None:
    """The same with an index of the files; None when it cannot be made."""
    maker = _maker(session)
    names = "\n".join(map(spark_uri, urls))
    sizes = None if store.is_local else _sizes(files)
    if maker is None or sizes == "" or names.count("\n") != len(urls) - 1:
        return None
    if not store.is_local:
        _open_store(session, spark_uri(urls[0]))
    try:
        index = maker.of(names, sizes)
        return None if index is None else _frame(session, index, schema)
    except PySparkException:  # what Spark's reader will say too
        return None
    except Exception:  # this Spark is another one than we know
        _makers[session._jvm] = None
        return None


def _sizes(files: pa.Table) -> str:
    """The sizes of files, one in a line; nothing if one of them may be wrong, which would hide rows.

    Whoever knows the size of a footer has seen the end of the file. DuckDB trusts these sizes too.
    """
    whole, footer = files.column("file_size_bytes"), files.column("footer_size")
    sure = pc.fill_null(pc.and_(pc.greater(footer, 0), pc.less(footer, whole)), False)
    return "\n".join(map(str, whole.to_pylist())) if pc.all(sure).as_py() else ""


def _maker(session: SparkSession) -> Any:
    """What makes an index in the JVM of a session, compiled once; None where that does not work."""
    with _lock:
        try:
            jvm = session._jvm
            if jvm not in _makers:
                _makers[jvm] = None
                _makers[jvm] = _compiled(session, jvm)
            return _makers[jvm]
        except Exception:  # the bridge is closed, or the compiler or a class is missing: each has its own error
            return None


def _compiled(session: SparkSession, jvm: Any) -> Any:
    loader = session._jsparkSession.getClass().getClassLoader()
    trait = loader.loadClass(f"{_SOURCES}.FileIndex")
    methods = {method.getName(): method for method in trait.getMethods()}
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    package = f"quacklake_{uuid4().hex}"  # the bridge knows methods by the name of the class, in all its life
    sequence = methods["rootPaths"].getReturnType().getName()  # another class in each Scala
    compiler.cook(_JAVA.substitute(package=package, name=_NAME, seq=sequence))
    return compiler.getClassLoader().loadClass(f"{package}.{_NAME}").newInstance()


def _open_store(session: SparkSession, name: str) -> None:
    """Raise what Spark would raise later if it has no jars for a store."""
    jvm: Any = session._jvm
    jvm.org.apache.hadoop.fs.Path(name).getFileSystem(session._jsparkSession.sessionState().newHadoopConf())


def _frame(session: SparkSession, index: Any, schema: str) -> DataFrame:
    jvm: Any = session._jvm
    options = jvm.java.util.HashMap()
    for key, value in READ_OPTIONS.items():
        options.put(key, value)
    sources = jvm.org.apache.spark.sql.execution.datasources
    types = jvm.org.apache.spark.sql.types
    relation = sources.HadoopFsRelation(
        index,
        types.StructType(),
        types.StructType.fromDDL(schema),
        jvm.scala.Option.empty(),
        sources.parquet.ParquetFileFormat(),
        jvm.PythonUtils.toScalaMap(options),
        session._jsparkSession,
    )
    return DataFrame(session._jsparkSession.baseRelationToDataFrame(relation), session)
