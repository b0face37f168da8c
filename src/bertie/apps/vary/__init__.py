"""Changed copies of texts, from which a student learns a teacher's answers."""
