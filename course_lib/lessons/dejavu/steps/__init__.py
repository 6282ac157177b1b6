"""The steps of lesson 09 that its exercises ask for, as the course does them: what a cell calls without an answer."""
