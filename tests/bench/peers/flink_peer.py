"""The queries on Apache Flink in one local JVM with parallelism 1: SQL, a file of JSON lines in, a sink
that forgets rows out.

A run before those that are timed writes its rows to files and counts them, and warms the JVM up. The
seconds of a run are those of the job alone, from start to end, without planning; CPU seconds are those
of the whole JVM.
"""
import glob
import os
import shutil
import tempfile

from pyflink.java_gateway import get_gateway
from pyflink.table import EnvironmentSettings, TableEnvironment

from timing import absent, arguments, is_parquet, report

COLUMNS = """auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3), extra STRING,
             WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND"""
BOUNDS = "window_start TIMESTAMP(3), window_end TIMESTAMP(3)"
TUMBLE = "TABLE(TUMBLE(TABLE bids, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))"
HOP = "TABLE(HOP(TABLE bids, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"  # slide, then size
SESSION = "TABLE(SESSION(TABLE bids PARTITION BY bidder, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))"
# Columns of the sink, and the query over `bids`.
QUERIES = {
    "q0": (
        "auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), extra STRING",
        "SELECT auction, bidder, price, `dateTime`, extra FROM bids",
    ),
    "q1": (
        "auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), `dateTime` TIMESTAMP(3), extra STRING",
        "SELECT auction, bidder, price * 0.908, `dateTime`, extra FROM bids",
    ),
    "q2": ("auction BIGINT, price BIGINT", "SELECT auction, price FROM bids WHERE MOD(auction, 123) = 0"),
    "q5": (
        f"auction BIGINT, {BOUNDS}, bids BIGINT",
        f"SELECT auction, window_start, window_end, COUNT(*) FROM {HOP} GROUP BY auction, window_start, window_end",
    ),
    "q7": (
        f"{BOUNDS}, price BIGINT",
        f"SELECT window_start, window_end, MAX(price) FROM {TUMBLE} GROUP BY window_start, window_end",
    ),
    "q11": (
        f"bidder BIGINT, {BOUNDS}, bids BIGINT",
        f"SELECT bidder, window_start, window_end, COUNT(*) FROM {SESSION} GROUP BY bidder, window_start, window_end",
    ),
    "q12": (
        f"bidder BIGINT, {BOUNDS}, bids BIGINT",
        f"SELECT bidder, window_start, window_end, COUNT(*) FROM {TUMBLE} GROUP BY bidder, window_start, window_end",
    ),
}


def jvm(field):
    """Of the JVM that runs the jobs, from /proc: CPU seconds so far, or the peak of its memory in bytes."""
    process = get_gateway().jvm.java.lang.ProcessHandle.current().pid()
    if field == "cpu":
        with open(f"/proc/{process}/stat") as stat:
            values = stat.read().rsplit(")", 1)[1].split()
        return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")
    with open(f"/proc/{process}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def run(path, query, sink):
    columns, select = QUERIES[query]
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.get_config().set("parallelism.default", "1")
    tables.get_config().set("table.local-time-zone", "UTC")
    source = f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601'"
    tables.execute_sql(f"CREATE TEMPORARY TABLE bids ({COLUMNS}) WITH ({source})")
    tables.execute_sql(f"CREATE TEMPORARY TABLE results ({columns}) WITH ({sink})")
    before = jvm("cpu")
    result = tables.execute_sql(f"INSERT INTO results {select}").get_job_client().get_job_execution_result().result()
    return {"seconds": result.get_net_runtime() / 1000, "cpu_seconds": jvm("cpu") - before}


def lines(folder):
    count = 0
    for path in glob.glob(os.path.join(folder, "**"), recursive=True):
        if os.path.isfile(path):
            with open(path, "rb") as file:
                while block := file.read(1 << 24):
                    count += block.count(b"\n")
    return count


def main():
    a = arguments(__doc__)
    if is_parquet(a.input) or a.query not in QUERIES:
        absent(a.query)
        return
    path, folder = os.path.abspath(a.input), tempfile.mkdtemp(prefix="weir-bench-flink-")
    try:
        run(path, a.query, f"'connector' = 'filesystem', 'path' = '{folder}', 'format' = 'json'")
        out_rows = lines(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for _ in range(a.repeat):
        figures = run(path, a.query, "'connector' = 'blackhole'")
        report({**figures, "out_rows": out_rows, "peak_rss_bytes": jvm("peak")})


if __name__ == "__main__":
    main()
