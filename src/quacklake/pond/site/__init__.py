"""Static sites: pages of Markdown with zoomable charts of series, as plain files for any web server or none."""
