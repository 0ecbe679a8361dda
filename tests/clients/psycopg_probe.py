"""What a Python program does with psycopg 3: python psycopg_probe.py PORT. Silent when all is well."""
import datetime
import decimal
import sys

import psycopg

port = int(sys.argv[1])
SETTINGS = f"host=127.0.0.1 port={port} user=weir dbname=weir connect_timeout=10"

# Autocommit off is psycopg's default: it sends BEGIN and COMMIT by itself, which must not hurt.
with psycopg.connect(SETTINGS) as connection:
    with connection.cursor() as cursor:
        cursor.execute(
            """CREATE SOURCE t (ts BIGINT, i2 SMALLINT, f8 DOUBLE PRECISION, d DECIMAL(10,2), s TEXT, b BOOLEAN, day DATE,
                                at TIMESTAMP(3), WATERMARK FOR ts AS ts)
               AS VALUES (0, 7, 0.25, 1.10, 'ä', TRUE, DATE '2024-02-29', TIMESTAMP '2024-02-29 01:02:03.004'),
                         (1, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"""
        )
        cursor.execute("CREATE JOB t_all AS SELECT ts, i2, f8, d, s, b, day, at FROM t")
        cursor.execute("WAIT FOR JOB t_all UNTIL FINISHED TIMEOUT '30s'")

wanted = [
    (0, 7, 0.25, decimal.Decimal("1.10"), "ä", True, datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 1, 2, 3, 4000)),
    (1, None, None, None, None, None, None, None),
]
with psycopg.connect(SETTINGS, autocommit=True) as connection:
    for binary in (False, True):
        with connection.cursor(binary=binary) as cursor:
            got = cursor.execute("SELECT * FROM t_all ORDER BY ts").fetchall()
            assert got == wanted, (binary, got)

            # Parameters of each kind; asked often enough that psycopg prepares the statement.
            for number in range(8):
                got = cursor.execute("SELECT s FROM t_all WHERE ts = %s AND i2 < %s", (0, 100 + number)).fetchall()
                assert got == [("ä",)], (binary, got)
            assert cursor.execute("SELECT ts FROM t_all WHERE s = %s", ("ä",)).fetchall() == [(0,)]
            assert cursor.execute("SELECT ts FROM t_all WHERE day = %s", (datetime.date(2024, 2, 29),)).fetchall() == [(0,)]
            assert cursor.execute("SELECT ts FROM t_all WHERE f8 > %s", (0.1,)).fetchall() == [(0,)]
            assert cursor.execute("SELECT ts FROM t_all WHERE b = %s", (True,)).fetchall() == [(0,)]

    # A text with a quote is a value, never a piece of the statement.
    assert connection.execute("SELECT ts FROM t_all WHERE s = %s", ("' OR 1 = 1 --",)).fetchall() == []

    # Times of system tables have their zone.
    created, state = connection.execute("SELECT created_at, state FROM weir.jobs WHERE id = %s", ("t_all",)).fetchone()
    assert created.tzinfo is not None and state == "finished", (created, state)

    # An error carries what psql shows.
    try:
        connection.execute("SELECT nope FROM t_all")
    except psycopg.errors.UndefinedColumn as error:
        assert error.diag.statement_position == "8" and "nope" in error.diag.message_primary, error
    else:
        raise AssertionError("an unknown column was accepted")
    assert connection.execute("SELECT 1").fetchone() == (1,)

    # Notices reach the program (SQL-14).
    heard = []
    connection.add_notice_handler(lambda notice: heard.append(notice.message_primary))
    connection.execute("CREATE JOB t_again AS SELECT ts FROM t")
    assert any("t_again" in message for message in heard), heard

# A transaction that fails says so until it is rolled back, or goes on; either way the connection lives.
with psycopg.connect(SETTINGS) as connection:
    try:
        connection.execute("SELECT * FROM nothing_there")
    except psycopg.errors.UndefinedTable:
        connection.rollback()
    assert connection.execute("SELECT count(*) FROM t_all").fetchone() == (2,)
