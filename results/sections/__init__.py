"""What results say: titles, tables and remarks, as text, before any rendering."""
