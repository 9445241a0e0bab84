-- The figures of each source in one row.
SELECT against, any_value(unit) AS unit,
    string_agg(format('{:.3g}', published::DOUBLE), ', ' ORDER BY rowid) AS published,
    string_agg(format('{:.3g}', modeled::DOUBLE), ', ' ORDER BY rowid) AS modeled
FROM figure GROUP BY against ORDER BY min(rowid)
