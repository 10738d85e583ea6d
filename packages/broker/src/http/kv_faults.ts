import { CodedFaults } from './coded_faults.ts';

export const kvFaults = new CodedFaults(
  [
    'kv_bad_request',
    'kv_quota_exceeded',
    'feature_gated',
    'kv_reserved_namespace',
    'payload_too_large',
    'rate_limited',
    'kv_disabled',
    'kv_unavailable',
  ],
  'kv_failed',
  'kv_unavailable',
);
