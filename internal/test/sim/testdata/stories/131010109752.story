# seed 131010109752: stl-1: decided at 19:11:59 to send, and resend_not_after is 19:11:55
the bank remembers a key for = 24h0m0s
the bank shows a transfer after = 0s
the bank answers a key that it knows with = its transfer
habit of the bank = is lost
mood of the bank = none
the store is = sound
the bank in the end = honest
everything is watched to the end = true
ack deadline = 2m0s
#      00:00:00  the bank remembers a key for 24h0m0s and shows a transfer after 0s; Pub/Sub waits 2m0s for an answer
more instances at first = 2
clock of an instance = -5s
configuration of an instance = as it should be
#      00:00:00  instance 1 starts, its clock is 5s behind
clock of an instance = 0s
configuration of an instance = as it should be
#      00:00:00  instance 2 starts, its clock is right
clock of an instance = 0s
configuration of an instance = as it should be
#      00:00:00  instance 3 starts, its clock is right
step = set a clock
instance = instance 3
the clock is set to = 5s
#      00:00:00  the clock of instance 3 is set: it is 5s ahead
step = push
what is published = a new payout
the new payout is = plain
its settlement ID = stl-1
#      00:00:00  message stl-1.1 is published: a new payout, plain
instance = instance 1
#      00:00:00  message stl-1.1 is pushed to instance 1, attempt 1
step = wait for several
how many = 6
instance = instance 3
#      00:00:00  instance 3 reconciles
#      00:00:00  instance 1: the transaction that settles stl-1 commits
the send goes unlike the bank's habit = false
#      00:00:00  instance 1: the send for stl-1 is lost
#      00:00:00    which makes it uncertain
#      00:00:00  instance 1: the transaction that records the answer about stl-1 commits
#      00:00:00  instance 1 answers 200 to message stl-1.1: applied
the answer to Pub/Sub = arrives
#      00:00:00  15s pass
instance = instance 3
#      00:00:15  instance 3 reconciles
#      00:00:15  instance 3: the transaction that claims stl-1 commits
how a question goes on = is answered
#      00:00:15  instance 3: the question about stl-1 is answered
#      00:00:15    it says not_found
#      00:00:15  instance 3: the transaction that records the answer about stl-1 commits
#      00:00:15  36.166s pass
instance = instance 3
#      00:00:51  instance 3 reconciles
#      00:00:51  instance 3: the transaction that claims stl-1 commits
how a question goes on = is answered
#      00:00:51  instance 3: the question about stl-1 is answered
#      00:00:51    it says not_found
#      00:00:51  instance 3: the transaction that records the answer about stl-1 commits
the send goes unlike the bank's habit = false
#      00:00:51  instance 3: the send for stl-1 is lost
#      00:00:51    which makes it uncertain
#      00:00:51  instance 3: the transaction that records the answer about stl-1 commits
#      00:00:51  25s pass
instance = instance 2
#      00:01:16  instance 2 reconciles
#      00:01:16  instance 2: the transaction that claims stl-1 commits
how a question goes on = is answered slowly
#      00:01:16  instance 2: the question about stl-1 is answered slowly
how the answer to a question comes = is lost, and the instance crashes
#      00:01:16  instance 2: the question about stl-1 is lost, and the instance crashes
#      00:01:16  instance 2 crashes
another instance starts at once = true
clock of an instance = 0s
configuration of an instance = as it should be
#      00:01:16  instance 4 starts, its clock is right
#      00:01:16  1m5s pass
instance = instance 1
#      00:02:21  instance 1 reconciles
#      00:02:21  instance 1: the transaction that claims stl-1 commits
how a question goes on = is answered
#      00:02:21  instance 1: the question about stl-1 is answered
#      00:02:21    it says not_found
#      00:02:21  instance 1: the transaction that records the answer about stl-1 commits
#      00:02:21  26.166s pass
instance = instance 1
#      00:02:47  instance 1 reconciles
#      00:02:47  instance 1: the transaction that claims stl-1 commits
how a question goes on = is answered
#      00:02:47  instance 1: the question about stl-1 is answered
#      00:02:47    it says not_found
#      00:02:47  instance 1: the transaction that records the answer about stl-1 commits
step = pass to near the last send
before or after = -11s
#      00:02:47  19h8m56.668s pass
step = reconcile
instance = instance 3
#      19:11:44  instance 3 reconciles
step = go on
call = due
step = go on
call = change stl-1
#      19:11:44  instance 3: the transaction that claims stl-1 commits
step = ask around the last send
before or after = -1s
#      19:11:44  10s pass
instance = instance 1
#      19:11:54  instance 1 reconciles
how a question goes on = is answered
#      19:11:54  instance 3: the question about stl-1 is answered
#      19:11:54    it says not_found
#      19:11:54  here it breaks: stl-1: decided at 19:11:59 to send, and resend_not_after is 19:11:55
