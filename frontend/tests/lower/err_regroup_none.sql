CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB bad AS SELECT auction, max(n) FROM (SELECT auction, count(*) AS n, window_end FROM tumble(bids, date_time, INTERVAL '1 minute') GROUP BY auction, window_end) GROUP BY auction;
