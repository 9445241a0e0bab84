-- Without classes and rates of links at which calibration knows every slowed link.
FROM figure
WHERE (kind, mbit_per_s) IN (
    SELECT (kind, mbit_per_s) FROM figure
    WHERE CASE left_percent WHEN 100 THEN "right" ELSE wrong END < "right" + inconclusive + wrong
)
ORDER BY rowid
