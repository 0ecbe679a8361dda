CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB bad AS SELECT window_start, max(n) FROM (SELECT bidder, window_start, count(*) AS n FROM session(bids, date_time, INTERVAL '1 minute') GROUP BY bidder, window_start) GROUP BY window_start;
