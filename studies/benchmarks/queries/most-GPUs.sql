FROM figure WHERE gpus = (SELECT max(gpus) FROM figure)
