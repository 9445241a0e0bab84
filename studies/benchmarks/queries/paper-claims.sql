-- The claims of the paper's platforms, and the failures that cost time.
SELECT replace(claim, ': slower on rail-only by', ', on rail-only') AS claim, paper, at_scale, modeled, measured
FROM figure
WHERE claim IS NOT NULL AND NOT regexp_matches(claim, 'mi300x|gh200|gb200|lost')
