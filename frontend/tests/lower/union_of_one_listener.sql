CREATE SOURCE h (k TEXT, ts BIGINT, x BIGINT, WATERMARK FOR ts AS ts)
  WITH (connector = 'http', address = '127.0.0.1:8080', path = '/h');
CREATE JOB j AS
  SELECT k, window_end, count(*) AS n FROM tumble(h, ts, INTERVAL '1 second') GROUP BY k, window_end
  UNION ALL
  SELECT 'all', window_end, count(*) FROM tumble(h, ts, INTERVAL '1 minute') GROUP BY window_end;
