"""Tools around the proxy that serving never needs: replay, explanation, diagnosis of logs, demonstrations."""
