CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB bad AS SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price) AS rn FROM bids) WHERE rn <= 3;
