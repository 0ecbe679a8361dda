CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE SINK out_counts WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'counts', format = 'json', key = 'auction');
CREATE JOB j INTO out_counts AS SELECT auction, price FROM bids;
