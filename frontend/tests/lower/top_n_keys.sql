CREATE SOURCE bids (auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP(3), extra TEXT,
    WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds')
  WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'bids', format = 'json');
CREATE JOB top AS SELECT bidder, auction, total FROM (
    SELECT bidder, auction, total, row_number() OVER (PARTITION BY bidder % 4, window_end ORDER BY total * -1 NULLS FIRST, auction DESC NULLS LAST) AS rn FROM (
      SELECT auction, bidder, window_end, sum(price) AS total FROM tumble(bids, date_time, INTERVAL '2 seconds')
      GROUP BY auction, bidder, window_end)) WHERE 3 > rn AND total > 100;
