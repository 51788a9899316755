"""Pictures of series: in the terminal, and as SVG, PNG and HTML."""
