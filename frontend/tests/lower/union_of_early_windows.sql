CREATE SOURCE v (k TEXT, ts BIGINT, x BIGINT, WATERMARK FOR ts AS ts) AS VALUES ('a', 0, 1);
CREATE JOB j WITH (window.trigger = 'processing_time', window.trigger_interval = '1s') AS
  SELECT k, window_start, window_end, count(*) AS n FROM tumble(v, ts, INTERVAL '1 second') GROUP BY k, window_start, window_end
  UNION ALL
  SELECT 'all', window_start, window_end, count(*) FROM tumble(v, ts, INTERVAL '1 second') GROUP BY window_start, window_end;
