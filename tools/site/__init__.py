"""What the documentation site is made with: extensions of Sphinx, and the parts of pages that programs write."""
