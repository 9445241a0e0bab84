-- The self-check: cases and errors of each verdict under each noise.
SELECT asked, observed, count(ratio) AS cases,
    coalesce(min(abs(ratio - 1)), 0.0) AS error_least,
    coalesce(max(abs(ratio - 1)), 0.0) AS error_most,
    count(*) FILTER (WHERE judged_right) AS "right"
FROM (SELECT asked, min(rowid) AS place FROM figure GROUP BY asked)
CROSS JOIN (VALUES ('pass', 1), ('warn', 2), ('fail', 3)) AS verdicts (observed, badness)
LEFT JOIN figure USING (asked, observed)
GROUP BY asked, observed, place, badness ORDER BY place, badness
