FROM figure
WHERE nic_mbps = (SELECT max(nic_mbps) FROM figure) AND starts_with("case", 'rail-only')
