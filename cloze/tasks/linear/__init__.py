"""Linear models on n-grams, next to which the results of networks stand: fitted in seconds, saved in two small files."""
