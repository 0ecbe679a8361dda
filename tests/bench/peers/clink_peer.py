"""The queries on clink with parallelism 1: a file of JSON lines in, its sink that forgets rows out.

Its event times are milliseconds since 1970. It folds names that are not quoted to lower case. Result
rows are counted in a run before those that are timed, through its sink that collects.
"""
import pyclink

from timing import absent, arguments, is_parquet, report, timed

COLUMNS = 'auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, "dateTime" BIGINT, extra VARCHAR'
HOP = "HOP(\"dateTime\", INTERVAL '10' SECOND, INTERVAL '2' SECOND)"  # size, then slide
TUMBLE = "TUMBLE(\"dateTime\", INTERVAL '10' SECOND)"
SESSION = "SESSION(\"dateTime\", INTERVAL '10' SECOND)"
# Columns of the sink, and the query over `bids`.
QUERIES = {
    "q0": (
        'auction BIGINT, bidder BIGINT, price BIGINT, "dateTime" BIGINT, extra VARCHAR',
        'SELECT auction, bidder, price, "dateTime", extra FROM bids',
    ),
    "q1": (
        'auction BIGINT, bidder BIGINT, price DOUBLE, "dateTime" BIGINT, extra VARCHAR',
        'SELECT auction, bidder, price * 0.908 AS price, "dateTime", extra FROM bids',
    ),
    "q2": ("auction BIGINT, price BIGINT", "SELECT auction, price FROM bids WHERE MOD(auction, 123) = 0"),
    "q5": (
        "auction BIGINT, bids BIGINT, start BIGINT",
        f"SELECT auction, COUNT(*) AS bids, window_start AS start FROM bids GROUP BY {HOP}, auction",
    ),
    "q7": ("price BIGINT, start BIGINT", f"SELECT MAX(price) AS price, window_start AS start FROM bids GROUP BY {TUMBLE}"),
    "q11": (
        "bidder BIGINT, bids BIGINT, start BIGINT",
        f"SELECT bidder, COUNT(*) AS bids, window_start AS start FROM bids GROUP BY {SESSION}, bidder",
    ),
    "q12": (
        "bidder BIGINT, bids BIGINT, start BIGINT",
        f"SELECT bidder, COUNT(*) AS bids, window_start AS start FROM bids GROUP BY {TUMBLE}, bidder",
    ),
}


def run(path, query, sink):
    columns, select = QUERIES[query]
    with pyclink.Engine(parallelism=1) as engine:
        source = f"connector='file', format='json', path='{path}', event_time_column='dateTime', watermark_lag_ms='4000'"
        engine.execute(f"CREATE TABLE bids ({COLUMNS}) WITH ({source})")
        engine.execute(f"CREATE TABLE results ({columns}) WITH (connector='{sink}')")
        figures = {}

        def job():
            engine.execute(f"INSERT INTO results {select}")
            rows = sum(batch.num_rows for batch in engine.collect("results").read_all().to_batches()) if sink == "collect" else 0
            engine.await_all()
            return rows

        figures = timed(job)
    return figures


def main():
    a = arguments(__doc__)
    if is_parquet(a.input) or a.query not in QUERIES:
        absent(a.query)
        return
    out_rows = run(a.input, a.query, "collect")["out_rows"]
    for _ in range(a.repeat):
        report({**run(a.input, a.query, "blackhole"), "out_rows": out_rows})


if __name__ == "__main__":
    main()
