CREATE SOURCE v (k TEXT, ts BIGINT, x BIGINT, WATERMARK FOR ts AS ts) AS VALUES ('a', 0, 1);
CREATE JOB j AS
  SELECT window_start, sum(n) AS n
  FROM tumble((SELECT window_start AS t, count(*) AS n FROM tumble(v, ts, INTERVAL '1 second') GROUP BY window_start
               UNION ALL SELECT to_timestamp_millis(ts), x FROM v), t, INTERVAL '1 minute')
  GROUP BY window_start, window_end;
