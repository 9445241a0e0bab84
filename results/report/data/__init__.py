"""The data of a report, and where its bytes and time went."""
