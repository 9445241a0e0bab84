-- Without jobs, which have a table, and rail-only fabrics that differ in their uplinks.
FROM figure
WHERE scenario = 'contention' AND ratio IS NOT NULL
    AND (shape, fabric) <> ('4 x 4, 2:1 by hash', 'rail-only')
