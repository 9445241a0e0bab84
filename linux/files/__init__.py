"""Files of users, and the program's own."""
