"""The live view: a web page that shows a running fabric."""
