CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB hottest WITH (window.emit_empty.horizon_ms = 60000, window.max_buffered_keys = 50) AS SELECT max(n) AS most, window_end FROM (
    SELECT auction, count(*) AS n, window_end FROM tumble(bids, date_time, INTERVAL '10 seconds') GROUP BY auction, window_end) GROUP BY window_end;
