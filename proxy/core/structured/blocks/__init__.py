"""What an assembled request consists of: items in sections, sections in blocks, and the breakdown of them."""
