"""Objects, plans and reports as people see them: columns, frames of text, charts, and files of rows."""
