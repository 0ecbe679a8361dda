CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB per_end AS SELECT e AS ended, count(*) AS groups FROM (
    SELECT bidder, window_end AS e FROM session(bids, date_time, INTERVAL '2 seconds') GROUP BY bidder, window_start, window_end) GROUP BY e;
