"""What every room uses: text and digests of what is equal, and errors in one line."""
