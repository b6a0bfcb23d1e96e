"""The statements: headers, packaging, plans."""
