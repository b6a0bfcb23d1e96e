"""A question asked from many threads: one thread asks, nobody waits too long."""

import threading

import pytest

from reaper.watching.patience import Question, Unanswered


def ask_from(threads, question):
    """Return what each of so many threads at once was answered."""
    answers = []
    gate = threading.Barrier(threads)

    def ask():
        gate.wait(30)
        answers.append(question.answer())

    started = [threading.Thread(target=ask) for _ in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join(30)
    return answers


def test_a_question_is_asked_once_when_many_want_to_know():
    asked = []
    release = threading.Event()

    def ask():
        asked.append(1)
        release.wait(30)
        return len(asked)

    question = Question(ask, "it", patience_seconds=30, fresh_seconds=60)
    threading.Timer(0.2, release.set).start()

    assert ask_from(20, question) == [1] * 20
    assert question.answer() == 1  # still fresh


def test_a_question_is_asked_again_when_its_answer_is_old():
    asked = []
    question = Question(lambda: asked.append(1) or len(asked), "it", patience_seconds=30)

    assert [question.answer(), question.answer()] == [1, 2]


def test_a_question_that_hangs_is_given_up_and_not_asked_twice():
    """Whatever hangs, the caller goes on; the one thread left behind is the only one."""
    asked = []
    release = threading.Event()
    question = Question(
        lambda: asked.append(1) or release.wait(30), "the server", patience_seconds=0.1
    )

    for _ in range(3):
        with pytest.raises(Unanswered, match=r"the server did not answer within 0\.1 s"):
            question.answer()
    assert asked == [1]
    release.set()


def test_what_the_asking_raised_is_raised_where_the_answer_is_wanted():
    def ask():
        raise KeyError("no")

    with pytest.raises(KeyError, match="no"):
        Question(ask, "it", patience_seconds=30).answer()
