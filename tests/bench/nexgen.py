"""Bids of an auction site in the shape of the Nexmark benchmark, as ndjson and as Parquet.

Every field is a function of (seed, event number) alone, in integer arithmetic, so the same
arguments give the same bytes on any machine, whatever the chunk size. Of every 50 events 1 is a
person, 3 are auctions and 46 are bids; only the bids are written. Half of them go to a busy
auction, and three quarters come from a busy bidder.

    python tests/bench/nexgen.py OUT --rows 5000000

writes OUT/bid.ndjson, OUT/bid.parquet, and OUT/bid-ms.ndjson, which is the first with its times
as milliseconds since 1970, for engines that do not read the text of a time. With --only others
are left out.
"""
import argparse
import json
import os
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

PERSONS, AUCTIONS, GROUP = 1, 3, 50
BIDS = GROUP - PERSONS - AUCTIONS
OPEN_AUCTIONS, ACTIVE_PERSONS = 100, 1000
FIRST_ID = 1000
BASE_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
SITES = np.array(["Google", "Facebook", "Baidu", "Apple"])
LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz012345", dtype=np.uint8)


@dataclass(frozen=True)
class Shape:
    """What the bytes depend on."""

    events_per_second: int = 20_000  # of event time, all three kinds
    seed: int = 1
    disorder_ms: int = 0  # each event is pushed back by up to this much


def mix(seed, numbers, salt):
    """splitmix64 of the event numbers: one independent stream a salt."""
    with np.errstate(over="ignore"):
        start = (seed * 0xD1342543DE82EF95 + salt * 0x2545F4914F6CDD1D + 1) % 2**64
        z = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def below(hashes, bound):
    return (hashes % np.uint64(bound)).astype(np.int64)


def letters(seed, numbers, salt, width):
    """Text of a fixed width: twelve characters from each hash."""
    out = np.empty((len(numbers), width), dtype=np.uint8)
    for column in range(width):
        if column % 12 == 0:
            hashes = mix(seed, numbers, salt + column)
        out[:, column] = LETTERS[((hashes >> np.uint64(5 * (column % 12))) & np.uint64(31)).astype(np.uint8)]
    offsets = np.arange(0, (len(numbers) + 1) * width, width, dtype=np.int32)
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(out.tobytes()))


def as_text(numbers):
    return pc.cast(pa.array(numbers), pa.string())


def glue(*parts):
    return pc.binary_join_element_wise(*parts, "")


def price(hashes):
    """Log-uniform over 1.00 to 10^6, in cents."""
    return (100 + below(hashes >> np.uint64(8), 900)) * (10 ** below(hashes, 6)).astype(np.int64)


def bid_numbers(first, last):
    """Numbers of the events that are bids, for bids `first` to `last` (exclusive)."""
    index = np.arange(first, last, dtype=np.int64)
    return index // BIDS * GROUP + PERSONS + AUCTIONS + index % BIDS


def bids(numbers, shape):
    """The bids of some events, as a table."""
    group = numbers // GROUP
    newest_auction, newest_person = group * AUCTIONS + AUCTIONS - 1, group

    def hashed(salt):
        return mix(shape.seed, numbers, salt)

    cold_auction = np.maximum(newest_auction - below(hashed(22), OPEN_AUCTIONS), 0)
    auction = np.where(below(hashed(21), 2) > 0, newest_auction // 100 * 100, cold_auction)
    cold_bidder = np.maximum(newest_person - below(hashed(24), ACTIVE_PERSONS), 0)
    bidder = np.where(below(hashed(23), 4) > 0, newest_person // 100 * 100 + 1, cold_bidder)
    site, channel = below(hashed(26), len(SITES)), below(hashed(27), 10_000)
    known = pa.array(below(hashed(25), 2) > 0)
    address = glue("https://auction.example.com/", letters(shape.seed, numbers, 900, 5), "/item.htm?query=1&channel_id=")
    ms = BASE_MS + numbers * 1000 // shape.events_per_second
    if shape.disorder_ms:
        ms = ms - below(hashed(99), shape.disorder_ms + 1)
    return pa.table(
        {
            "auction": FIRST_ID + auction,
            "bidder": FIRST_ID + bidder,
            "price": price(hashed(28)),
            "channel": pc.if_else(known, pa.array(SITES[site]), glue("channel-", as_text(channel))),
            "url": glue(address, pc.if_else(known, as_text(site), as_text(channel))),
            "dateTime": pa.array(ms, pa.timestamp("ms")),
            "extra": letters(shape.seed, numbers, 1000, 20),
        }
    )


def ndjson(table, times_in_ms=False):
    """One JSON object a line; no text above needs an escape."""
    parts = []
    for index, name in enumerate(table.column_names):
        column = table.column(name).combine_chunks()
        key = ("{" if index == 0 else ",") + json.dumps(name) + ":"
        if pa.types.is_timestamp(column.type) and times_in_ms:
            parts += [key, pc.cast(pc.cast(column, pa.int64()), pa.string())]
        elif pa.types.is_timestamp(column.type):
            parts += [key + '"', pc.strftime(column, format="%Y-%m-%dT%H:%M:%S"), '"']
        elif pa.types.is_string(column.type):
            parts += [key + '"', column, '"']
        else:
            parts += [key, as_text(column)]
    lines = glue(*parts, "}\n")
    if isinstance(lines, pa.ChunkedArray):
        lines = lines.combine_chunks()
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)
    return memoryview(data)[int(ends[lines.offset]) : int(ends[lines.offset + len(lines)])]


KINDS = {"json": "bid.ndjson", "json-ms": "bid-ms.ndjson", "parquet": "bid.parquet"}


def write(out, rows, shape, kinds=tuple(KINDS), chunk=250_000):
    """Writes the files of these kinds; those of before with the same arguments are kept."""
    os.makedirs(out, exist_ok=True)
    paths = {kind: os.path.join(out, KINDS[kind]) for kind in kinds}
    stamp, wanted = os.path.join(out, "stamp"), f"{rows} {shape}\n"
    if not os.path.exists(stamp) or open(stamp).read() != wanted:
        for name in [*KINDS.values(), "stamp"]:
            if os.path.exists(os.path.join(out, name)):
                os.remove(os.path.join(out, name))
    missing = {kind: path for kind, path in paths.items() if not os.path.exists(path)}
    if missing:
        # A file has its name once it is whole.
        half = {kind: path + ".part" for kind, path in missing.items()}
        files = {kind: open(path, "wb") for kind, path in half.items()}
        parquet = None
        for first in range(0, rows, chunk):
            table = bids(bid_numbers(first, min(first + chunk, rows)), shape)
            for kind, file in files.items():
                if kind == "parquet":
                    parquet = parquet or pq.ParquetWriter(file, table.schema, compression="snappy")
                    parquet.write_table(table)
                else:
                    file.write(ndjson(table, kind == "json-ms"))
        if parquet:
            parquet.close()
        for kind, file in files.items():
            file.close()
            os.replace(half[kind], missing[kind])
    with open(stamp, "w") as file:
        file.write(wanted)
    return paths


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--events-per-second", type=int, default=Shape.events_per_second)
    parser.add_argument("--seed", type=int, default=Shape.seed)
    parser.add_argument("--disorder-ms", type=int, default=0)
    parser.add_argument("--only", default=",".join(KINDS), help="which files to write")
    a = parser.parse_args()
    kinds = [kind for kind in a.only.split(",") if kind]
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or a.rows < 1:
        parser.error(f"unknown kinds {unknown}: choose from {', '.join(KINDS)}" if unknown else "--rows must be at least 1")
    print(json.dumps(write(a.out, a.rows, Shape(a.events_per_second, a.seed, a.disorder_ms), kinds)))


if __name__ == "__main__":
    main()
