CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB q7 AS SELECT b.price FROM bids b JOIN (SELECT max(price) AS m, window_end FROM tumble(bids, date_time, INTERVAL '10 seconds') GROUP BY window_end) w ON b.price = w.m;
