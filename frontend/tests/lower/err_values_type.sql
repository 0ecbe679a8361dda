CREATE SOURCE v (a BIGINT, b TEXT) AS VALUES (1, 'x'),
  (1.5, 'y');
