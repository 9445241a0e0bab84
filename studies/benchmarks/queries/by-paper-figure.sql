-- The points of each figure of the paper in one row.
SELECT figure, max(points) AS points, max(ratio_least) AS ratio_least, max(ratio_most) AS ratio_most,
    sum(same_order)::INT AS same_order, sum(pairs)::INT AS pairs
FROM figure WHERE figure IS NOT NULL GROUP BY figure ORDER BY min(rowid)
