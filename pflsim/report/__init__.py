"""Pages about runs: a builder of self-contained HTML pages, and the pictures that go into them."""
