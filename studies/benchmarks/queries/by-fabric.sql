-- The ratios of each fabric in one row.
SELECT fabric, count(*) AS cases,
    min(ratio) AS ratio_least, max(ratio) AS ratio_most,
    count_if(abs(ratio - 1) <= 0.02) AS within_2_percent,
    count_if(verdict = 'fail') AS failed
FROM figure WHERE ratio IS NOT NULL
GROUP BY fabric ORDER BY min(rowid)
