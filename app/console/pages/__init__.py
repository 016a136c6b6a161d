"""The pages of the console, a module each: it reads, words and shows one page."""
