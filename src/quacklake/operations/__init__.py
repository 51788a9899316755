"""What reads and changes tables: the context of a lake, its states, and the operations on them."""
