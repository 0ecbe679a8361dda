CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB several AS
  SELECT 'minute' AS what, window_end, count(*) AS n FROM tumble(bids, date_time, INTERVAL '1 minute') GROUP BY window_start, window_end
  UNION ALL SELECT 'session', window_end, count(*) FROM session(bids, date_time, INTERVAL '1 minute') GROUP BY window_start, window_end;
