"""The HTTP server: the API of LibreTranslate and more, batching across requests, and a web page."""
