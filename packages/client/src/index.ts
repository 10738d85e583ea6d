export { AckError, AckInDoubtError } from './calls/ack.ts';
export { PushError, PushInDoubtError } from './calls/push.ts';
export { type ClientOptions, Queen } from './client.ts';
export type { Consumer, StopOptions } from './consume/consumer.ts';
export type { Delivery } from './consume/delivery.ts';
export type { BatchHandler, ConsumeOptions, Handler, Said, TakeOptions, Work } from './consume/options.ts';
export {
  AbortedError,
  type ErrorKind,
  InDoubtError,
  OverloadedError,
  QueenError,
  RefusedError,
  UnavailableError,
} from './errors.ts';
export type {
  AckResult,
  Message,
  MessageRef,
  NewMessage,
  Outcome,
  PopOptions,
  PushResult,
} from './message.ts';
export type { Producer, ProducerOptions } from './produce/producer.ts';
export type { Queue } from './queue/queue.ts';
export type { Subscription } from './queue/subscription.ts';
export type { Admin, Health, Maintenance, StatusFilter, Switches } from './services/admin.ts';
export type {
  Connector,
  ConnectorConnection,
  ConnectorSpec,
  Connectors,
  SinkSpec,
  SourceSpec,
} from './services/connectors.ts';
export type { DeadLetter, DeadLetterFilter, DeadLetters, Replayed } from './services/dead_letters.ts';
export type { GroupDetail, GroupStanding, Groups, LaggingPartition, SeekTarget } from './services/groups.ts';
export type { KeyValues } from './services/kv.ts';
export type { KvEntry, KvOperation, KvWritten, Life } from './services/kv_operations.ts';
export type { ChangedPage, Log, LogPart, LogPlace, PartitionHead } from './services/log.ts';
export type { LogRecord, MessageFilter, Messages, StoredMessage } from './services/messages.ts';
export type { ConfiguredQueue, QueueOptions } from './services/queue_options.ts';
export type { PartitionPage, QueueDepth, QueueDetail, QueueSummary } from './services/queues.ts';
export type { PendingTimer, TimerMessage, TimerOperation, TimerResult, Timers } from './services/timers.ts';
export type { Transaction, TransactionPart, TransactionResult } from './services/transaction.ts';
export { mintId } from './uuid.ts';
export type { RetryPolicy } from './wire/backoff.ts';
export type { CallOptions } from './wire/transport.ts';
