"""The model as a server: LibreTranslate's HTTP API and our own, requests translated together, a web page."""
